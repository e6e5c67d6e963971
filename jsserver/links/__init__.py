"""Links to other servers: state machines that decide whom to dial, what to say and what to keep."""
