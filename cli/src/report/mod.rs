//! Locks and jobs as the subcommands show them: to programs as JSON, to people as rows of a table.

pub(crate) mod job;
pub(crate) mod json;
pub(crate) mod row;
pub(crate) mod span;
pub(crate) mod table;
