//! placeholder
pub mod fault;
