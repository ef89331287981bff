//! placeholder

pub mod chain;
pub mod rewrite;
