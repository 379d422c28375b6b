//! Makes the drawings of `docs/how-it-works` from what a real server and real clients do.
//!
//! ```sh
//! cargo run --package leasehold-proof --bin drawing
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to people")]

mod make;

use std::process::ExitCode;

fn main() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drawing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> make::Result<()> {
    let folder = make::folder();
    std::fs::create_dir_all(&folder)?;
    for drawing in make::all()? {
        let path = folder.join(drawing.file);
        std::fs::write(&path, &drawing.svg)?;
        println!("docs/how-it-works/{} ({} bytes)", drawing.file, drawing.svg.len());
    }
    Ok(())
}
