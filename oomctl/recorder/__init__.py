"""Taking snapshots at the moment of an OOM; the only room that imports torch."""
