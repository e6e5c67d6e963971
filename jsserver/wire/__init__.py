"""What the API and configuration files of streams are made of: types, errors, reading them."""
