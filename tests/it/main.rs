//! Integration tests: one binary, one module per topic.

mod tidy;
