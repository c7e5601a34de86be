//! What asks the program to stop.
