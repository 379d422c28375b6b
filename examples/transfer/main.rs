//! Money that moves between two accounts: both are locked at once, and each write is fenced.
//!
//! ```sh
//! cargo run --bin transfer
//! ```
//!
//! Six tellers of two clients move money between four accounts, which are rows in SQLite. A transfer needs two
//! accounts, and half of the tellers name the one that pays first, the others the one that is paid: with one lock after
//! the other they would soon wait for each other for ever. [`LockClient::lock_all`] takes both, in an order of its own.
//!
//! Each account has a lock of its own, so each has tokens of its own. [`transfer`] writes both rows in one
//! transaction of the database, each with the token of its lock, and only if no later holder was at either of them. It
//! is the part to copy.
//!
//! It uses a private server, and fails if money appears or vanishes.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use leasehold::{FencingToken, LockClient, MultiGuard};
use leasehold_support::Server;
use rusqlite::{Connection, Transaction, named_params};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNTS: i64 = 4;
const OPENING: i64 = 100;
const TELLERS: i64 = 6;
const TRANSFERS: i64 = 50;

/// Writes a balance, unless a later holder of the account's lock was here.
const WRITE: &str = "UPDATE accounts SET balance = balance + :adds, fence = :token WHERE id = :id AND fence <= :token";

/// Moves money, if both accounts are still this holder's. Returns false if a later holder was at one of them: then
/// nothing was written.
fn transfer(
    bank: &mut Connection,
    guard: &MultiGuard,
    (from, to): (i64, i64),
    amount: i64,
) -> Result<bool> {
    // All or nothing in the database, too.
    let books = bank.transaction()?;
    let is_written = add(&books, guard, from, -amount)? && add(&books, guard, to, amount)?;
    if is_written {
        books.commit()?;
    }
    Ok(is_written)
}

fn add(books: &Transaction<'_>, guard: &MultiGuard, account: i64, adds: i64) -> Result<bool> {
    let part = guard.get(name(account)).ok_or("the account is not locked")?;
    let token = number(part.fencing_token())?;
    let write = named_params! { ":adds": adds, ":token": token, ":id": account };
    Ok(books.execute(WRITE, write)? == 1)
}

/// Tokens fit in a signed column: they are below 2^53.
fn number(token: FencingToken) -> Result<i64> {
    Ok(i64::try_from(token.get())?)
}

fn name(account: i64) -> String {
    format!("account:{account}")
}

/// One teller's transfers.
fn work(client: &LockClient, bank: &Mutex<Connection>, teller: i64) -> Result<()> {
    for round in 0..TRANSFERS {
        let from = (teller + round) % ACCOUNTS;
        let to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
        let mut locks = [client.mutex(name(from))?, client.mutex(name(to))?];
        // In any order.
        if teller % 2 == 0 {
            locks.reverse();
        }
        let guard = client.lock_all(&locks)?;
        // SQLite has one writer at a time. Another database would not need this.
        let mut bank = bank.lock().unwrap_or_else(PoisonError::into_inner);
        if !transfer(&mut bank, &guard, (from, to), 1 + teller)? {
            return Err("a later holder was at an account that this teller holds".into());
        }
        drop(bank);
        guard.release()?;
    }
    Ok(())
}

/// All transfers. Returns the balances afterwards.
fn day() -> Result<Vec<i64>> {
    let server = Server::start()?;
    let bank = Connection::open_in_memory()?;
    bank.execute_batch(
        "CREATE TABLE accounts (
            id INTEGER PRIMARY KEY,
            balance BIGINT NOT NULL,
            fence BIGINT NOT NULL DEFAULT 0
        )",
    )?;
    for account in 0..ACCOUNTS {
        bank.execute("INSERT INTO accounts (id, balance) VALUES (?1, ?2)", [account, OPENING])?;
    }
    let bank = Mutex::new(bank);
    // Two clients are as good as two processes: neither knows of the other.
    let clients = [LockClient::open(server.url())?, LockClient::open(server.url())?];
    thread::scope(|scope| {
        let work = |teller: i64| {
            let (client, bank) = (&clients[usize::from(teller > TELLERS / 2)], &bank);
            scope.spawn(move || work(client, bank, teller))
        };
        let tellers: Vec<_> = (0..TELLERS).map(work).collect();
        tellers.into_iter().try_for_each(|it| it.join().map_err(|_| "a teller panicked")?)
    })?;
    let bank = bank.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut balances = bank.prepare("SELECT balance FROM accounts ORDER BY id")?;
    let balances = balances.query_map([], |row| row.get(0))?;
    Ok(balances.collect::<std::result::Result<_, _>>()?)
}

fn main() -> Result<()> {
    let begin = Instant::now();
    let balances = day()?;
    let (count, took) = (TELLERS * TRANSFERS, begin.elapsed());
    println!("{count} transfers of {TELLERS} tellers in {took:.1?}; balances: {balances:?}");
    if balances.iter().sum::<i64>() != ACCOUNTS * OPENING {
        return Err("money appeared or vanished".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_money_appears_or_vanishes() {
        assert_eq!(day().unwrap().iter().sum::<i64>(), ACCOUNTS * OPENING);
    }
}
