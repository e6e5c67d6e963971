"""Power cuts: a recorder of what a server does to its files, a disk that is cut, and a load."""
