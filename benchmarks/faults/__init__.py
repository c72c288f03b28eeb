"""What commands do when they are given nonsense, damaged files, full disks, or are killed."""
