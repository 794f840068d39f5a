"""The same work on many inputs: on the processes of one machine, or on a cluster; what fails costs that input only."""
