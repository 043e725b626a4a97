//! Opening files that only root can have written.
