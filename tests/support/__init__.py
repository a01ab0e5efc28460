"""What tests run against: real servers, faults between them and their clients, small disks."""
