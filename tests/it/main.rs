//! Integration tests: one binary, one module per topic.

mod api;
mod heap_model;
mod rescale;
mod support;
mod tidy;
