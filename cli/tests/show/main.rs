//! The subcommands that look, by the real program against real servers.

mod command;
mod common;
mod connection;
mod terminal;
mod top;
