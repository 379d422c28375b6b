//! `leasehold generate`: the manual pages, and what shells complete. For those who install the program.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct GenerateArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write the manual pages, one for each subcommand, into a folder.
    Man {
        /// An existing folder, such as `/usr/local/share/man/man1`.
        folder: PathBuf,
    },
    /// Print what a shell completes.
    Completion { shell: Shell },
}

impl GenerateArguments {
    pub(crate) fn run(self, mut command: Command) -> Result<ExitCode, Failure> {
        match self.what {
            What::Man { folder } => clap_mangen::generate_to(command, &folder)
                .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?,
            What::Completion { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "leasehold", &mut text);
                std::io::Write::write_all(&mut std::io::stdout().lock(), &text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
