//! Measures lowtide beside other engines, and against the bars that its speed has to meet.
//!
//! Owns: the subjects, the loops, the bars. Does not own: the workload of the peers and its suites
//! (`lowtide::compare::peer`), which engine is the right one for anybody.
//!
//! Every figure is a ratio of two measurements of one process, taken in turns, as a median over rounds.

pub mod bare;
pub mod bars;
pub mod engines;
pub mod flink;
pub mod huge;
pub mod kinds;
pub mod measure;
pub mod peers;
pub mod record;
