"""Tools for a store directory that no server runs on: check, dump, du and repair.

`places` finds streams and opens files, `blocks` reads records, `caches` and `consumers` what stands
beside them; `check` looks at a stream with `messages`, `beside` and `wheels`, `repair` mends it
with `mending` and `bits`, `dumping` and `usage` show it; `command` is the way in."""
