"""What an operator does to a cluster's store directory that no server runs on: `jsserver cluster`.

`groupfiles` reads and writes the files of a Raft group, `grouplogs` a group's log as a whole,
`plans` says what becomes of assignments, `carrying` what is done and in which order; `founding`
begins a cluster with a standalone server's streams, `asides` has what was put aside; `command` is
the way in."""
