//! `leasehold generate`: the manual pages, and what shells complete. For those who install the program.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::command::manual;
use crate::failure::Failure;

/// Write the manual pages, or print the completion script of a shell.
///
/// `man` writes a page for each subcommand into a folder, which it creates if there is none. `completion` prints a script
/// that makes a shell complete subcommands and options.
#[derive(Args, Debug)]
pub(crate) struct GenerateArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write the manual pages, one for each subcommand, into a folder.
    Man {
        /// The folder, such as `/usr/local/share/man/man1`. It is created if there is none.
        folder: PathBuf,
    },
    /// Print the completion script of a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Completes the job of `run`: a command with its own arguments, after the `--`. The generated function does the rest.
const JOB: &str = r#"
_leasehold_job() {
    local at is_run=
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${COMP_WORDS[at]} == run ]]; then
            is_run=yes
        elif [[ ${COMP_WORDS[at]} == -- && -n $is_run ]]; then
            if declare -F _command_offset > /dev/null; then
                _command_offset $((at + 1))
            elif ((COMP_CWORD == at + 1)); then
                COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
            else
                COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
            fi
            return 0
        fi
    done
    _leasehold "$@"
}
complete -F _leasehold_job -o bashdefault -o default leasehold
"#;

/// A page for the program and for each subcommand, with the sections that clap does not know.
fn write_pages(mut command: Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    command = command.disable_help_subcommand(true);
    command.build();
    write_page(&command, "", folder)?;
    let mut subcommands = command.get_subcommands().filter(|it| it.get_name() != "help");
    subcommands.try_for_each(|subcommand| write_page(subcommand, subcommand.get_name(), folder))
}

fn write_page(command: &Command, name: &str, folder: &Path) -> io::Result<()> {
    // Only the program's own have pages.
    let has_pages = name.is_empty();
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if has_pages {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    text.extend_from_slice(manual::sections(name).unwrap_or_default().as_bytes());
    if command.get_version().is_some() {
        man.render_version_section(&mut text)?;
    }
    std::fs::write(folder.join(man.get_filename()), text)
}

impl GenerateArguments {
    pub(crate) fn run(self, mut command: Command) -> Result<ExitCode, Failure> {
        match self.what {
            What::Man { folder } => write_pages(command, &folder)
                .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?,
            What::Completion { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "leasehold", &mut text);
                if shell == Shell::Bash {
                    text.extend_from_slice(JOB.as_bytes());
                }
                std::io::Write::write_all(&mut std::io::stdout().lock(), &text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
