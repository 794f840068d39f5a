NAME = "imported from beside the script"
