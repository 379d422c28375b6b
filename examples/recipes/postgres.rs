//! A transfer in PostgreSQL: both accounts are locked at once, and a holder that is late is refused.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin postgres
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use leasehold::{Lease, LockClient, LockOptions, MultiGuard};
use leasehold_recipes::{Postgres, Result, Server, skip};
use postgres::{Client, NoTls};

const TABLE: &str = "CREATE TABLE account (id TEXT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
    INSERT INTO account (id, balance) VALUES ('ann', 100), ('bob', 100)";
const ADD: &str =
    "UPDATE account SET balance = balance + $1, fence = $2 WHERE id = $3 AND fence <= $2";

/// Moves money in one transaction. Returns false if a later holder was at an account: then nothing was written.
fn transfer(bank: &mut Client, guard: &MultiGuard, amount: i64) -> Result<bool> {
    let mut books = bank.transaction()?;
    for (account, adds) in [("ann", -amount), ("bob", amount)] {
        let part = guard.get(account).ok_or("the account is not locked")?;
        let token = i64::try_from(part.fencing_token().get())?;
        if books.execute(ADD, &[&adds, &token, &account])? != 1 {
            return Ok(false); // the transaction is rolled back
        }
    }
    books.commit()?;
    Ok(true)
}

fn main() -> Result<()> {
    let Some(database) = Postgres::start()? else {
        skip("PostgreSQL is not installed");
        return Ok(());
    };
    let mut bank = Client::connect(&database.address(), NoTls)?;
    bank.batch_execute(TABLE)?;
    let server = Server::start()?;
    let client = LockClient::open(server.url())?;
    let brief = LockOptions::new().lease(Lease::fixed(Duration::from_millis(100)));
    let accounts = [client.mutex_with("ann", brief)?, client.mutex_with("bob", brief)?];
    let late = client.lock_all(&accounts)?;
    // The holder is paused for longer than its lease: another has both accounts.
    let other = LockClient::open(server.url())?;
    let guard = other.lock_all(&[other.mutex("bob")?, other.mutex("ann")?])?;

    let outcomes = [transfer(&mut bank, &guard, 10)?, transfer(&mut bank, &late, 50)?];
    println!("written: {outcomes:?}");
    let rows = bank.query("SELECT balance FROM account ORDER BY id", &[])?;
    let balances: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    println!("balances: {balances:?}");
    if outcomes == [true, false] && balances == [90, 110] {
        Ok(())
    } else {
        Err("not fenced".into())
    }
}
