"""Tokens of operator mode: what they say, who signed them, and whom they make of a user.

Nothing here knows a network, a file or a server; times are handed in.
"""
