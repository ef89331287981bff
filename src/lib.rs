//! placeholder
pub mod fault;
pub mod simulate;
