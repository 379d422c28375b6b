//! The subcommands that look, by the real program against real servers.

mod command;
mod common;
mod connection;
mod doctor;
mod generate;
mod list;
mod picture;
mod terminal;
mod top;
mod unit;
mod user;
