"""What strangers' files and sick machines do, from end to end."""
