//! Settings: flags over variables over a file over what is built in.
