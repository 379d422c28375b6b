//! What a fencing token is for: a holder that was paused past its lease writes late, and the
//! database refuses it.
//!
//! ```sh
//! cargo run --package leasehold-fencing
//! ```
//!
//! Two tellers book on one account, which is a row in SQLite. The first has the lock, reads the
//! balance, and is then paused until its lease is over: here it just waits, as a process does that
//! was stopped or swapped out. The second gets the lock, and books. Then the first goes on where it
//! was, and writes what it had worked out.
//!
//! That is done twice: once the database takes what comes, and the second teller's money is gone;
//! once it compares tokens. [`begin`], [`read`] and [`write`] are the part to copy.
//!
//! It uses a private server, and fails if a round does not end as promised.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use leasehold::{FencingToken, Lease, LockClient, LockOptions, Mutex};
use leasehold_support::Server;
use rusqlite::{Connection, named_params, params};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNT: i64 = 42;
const OPENING: i64 = 100;
/// Not renewed, so that a pause of this length is enough.
const LEASE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// The statements of the guide, word for word.
const CLAIM: &str = "UPDATE accounts SET fence = :token WHERE id = :id AND fence <= :token;";
const READ: &str = "SELECT balance FROM accounts WHERE id = :id;";
const WRITE: &str =
    "UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token;";

/// Closes the account to all earlier holders. Returns false if a later one was here.
///
/// A hold may claim the account as often as it likes.
fn begin(bank: &Connection, token: FencingToken) -> Result<bool> {
    let claim = named_params! { ":token": number(token)?, ":id": ACCOUNT };
    Ok(bank.execute(CLAIM, claim)? == 1)
}

fn read(bank: &Connection) -> Result<i64> {
    Ok(bank.query_row(READ, named_params! { ":id": ACCOUNT }, |row| row.get(0))?)
}

/// Writes the balance. Returns false if a later holder was here: nothing was written.
fn write(bank: &Connection, token: FencingToken, balance: i64) -> Result<bool> {
    let update = named_params! { ":balance": balance, ":token": number(token)?, ":id": ACCOUNT };
    Ok(bank.execute(WRITE, update)? == 1)
}

/// The same without a look at the token: what goes wrong.
fn write_blindly(bank: &Connection, balance: i64) -> Result<bool> {
    let update = "UPDATE accounts SET balance = ?2 WHERE id = ?1";
    Ok(bank.execute(update, params![ACCOUNT, balance])? == 1)
}

/// Tokens fit in a signed column: they are below 2^53.
fn number(token: FencingToken) -> Result<i64> {
    Ok(i64::try_from(token.get())?)
}

/// One write, as the table shows it.
#[derive(Debug)]
struct Booking {
    teller: &'static str,
    token: FencingToken,
    read: i64,
    adds: i64,
    accepted: bool,
    balance: i64,
}

/// Both tellers' bookings, in the order of their writes.
fn round(tellers: [&Mutex; 2], fenced: bool) -> Result<[Booking; 2]> {
    let bank = Connection::open_in_memory()?;
    bank.execute_batch(
        "CREATE TABLE accounts (
            id INTEGER PRIMARY KEY,
            balance BIGINT NOT NULL,
            fence BIGINT NOT NULL DEFAULT 0
        )",
    )?;
    bank.execute("INSERT INTO accounts (id, balance) VALUES (?1, ?2)", [ACCOUNT, OPENING])?;
    let book = |teller, token, read: i64, adds| -> Result<Booking> {
        let accepted = if fenced {
            write(&bank, token, read + adds)?
        } else {
            write_blindly(&bank, read + adds)?
        };
        Ok(Booking { teller, token, read, adds, accepted, balance: self::read(&bank)? })
    };

    let late = tellers[0].lock()?;
    // Twice, as where a function that takes the lock calls another that takes it again.
    if fenced && !(begin(&bank, late.fencing_token())? && begin(&bank, late.fencing_token())?) {
        return Err("the first teller was refused".into());
    }
    let seen = read(&bank)?;

    // The pause. The second teller waits for the end of the lease, and for nothing else.
    let pause = Instant::now();
    let guard = tellers[1].try_lock_for(PATIENCE)?.ok_or("the lease has not ended")?;
    while late.is_valid() {
        if pause.elapsed() > PATIENCE {
            return Err("the first teller's lease does not end".into());
        }
        sleep(Duration::from_millis(1));
    }
    if fenced && !begin(&bank, guard.fencing_token())? {
        return Err("the second teller was refused".into());
    }
    if fenced && begin(&bank, late.fencing_token())? {
        return Err("the first teller claimed the account though its lease is over".into());
    }
    let in_time = book("second, in time", guard.fencing_token(), read(&bank)?, 50)?;
    guard.release()?;

    // It should have asked `is_valid`; but what if the pause had come right after that?
    let late = book("first, too late", late.fencing_token(), seen, 30)?;
    Ok([in_time, late])
}

/// Both rounds, on a private server: without a look at the token, and with one.
fn rounds() -> Result<[[Booking; 2]; 2]> {
    let server = Server::start()?;
    // Two clients are as good as two processes: neither knows of the other.
    let options = LockOptions::new().lease(Lease::fixed(LEASE));
    let locks = [LockClient::open(server.url())?, LockClient::open(server.url())?]
        .map(|client| client.mutex_with("account:42", options));
    let [first, second] = locks;
    let (first, second) = (first?, second?);
    Ok([round([&first, &second], false)?, round([&first, &second], true)?])
}

fn main() -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_header(["the database", "teller", "token", "read", "adds", "write", "balance"]);
    let rounds = rounds()?;
    for (kind, bookings) in ["takes what comes", "compares tokens"].iter().zip(&rounds) {
        for booking in bookings {
            table.add_row([
                (*kind).to_owned(),
                booking.teller.to_owned(),
                booking.token.to_string(),
                booking.read.to_string(),
                format!("+{}", booking.adds),
                if booking.accepted { "accepted" } else { "refused" }.to_owned(),
                booking.balance.to_string(),
            ]);
        }
    }
    for column in [2, 3, 4, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    let [[_, blind], [in_time, late]] = &rounds;
    if !blind.accepted || !in_time.accepted || late.accepted || late.balance != OPENING + 50 {
        return Err("a round did not end as promised".into());
    }
    println!("The late write lost the second teller's 50, until the database compared tokens.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CLAIM, OPENING, READ, WRITE, rounds};

    #[test]
    fn the_guide_shows_these_statements() {
        let guide = include_str!("../../docs/recipes.md");
        for statement in [CLAIM, READ, WRITE] {
            assert!(guide.contains(statement), "docs/recipes.md lacks {statement}");
        }
    }

    #[test]
    fn late_write_is_accepted_without_token_refused_with_one() {
        let [blind, fenced] = rounds().unwrap();
        assert!(blind[0].accepted && blind[1].accepted);
        assert_eq!(blind[1].balance, OPENING + 30);
        assert!(fenced[0].token > fenced[1].token);
        assert!(fenced[0].accepted && !fenced[1].accepted);
        assert_eq!(fenced[1].balance, OPENING + 50);
    }
}
