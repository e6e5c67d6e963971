"""Links to other servers: who is dialled, what both sides say, and what goes where."""
