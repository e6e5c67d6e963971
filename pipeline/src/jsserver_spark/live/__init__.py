"""What reads the streams of a live server: bounds, fetching, offsets of streaming queries."""
