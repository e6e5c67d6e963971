"""Breaks the server in one place at a time and names what no test notices."""
