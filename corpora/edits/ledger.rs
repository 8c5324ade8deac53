use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub account: String,
    pub amount: i64,
    pub memo: String,
}

#[derive(Debug)]
pub enum LedgerError {
    UnknownAccount(String),
    Unbalanced(i64),
}

#[derive(Default)]
pub struct Ledger {
    balances: HashMap<String, i64>,
    journal: Vec<Entry>,
}

impl Ledger {
    pub fn open(&mut self, account: &str) {
        self.balances.insert(account.to_string(), 0);
    }

    pub fn post(&mut self, entries: Vec<Entry>) -> Result<(), LedgerError> {
        let sum: i64 = entries.iter().map(|entry| entry.amount).sum();
        if sum != 0 {
            return Err(LedgerError::Unbalanced(sum));
        }
        for entry in entries {
            let balance = self
                .balances
                .get_mut(&entry.account)
                .ok_or_else(|| LedgerError::UnknownAccount(entry.account.clone()))?;
            *balance += entry.amount;
            self.journal.push(entry);
        }
        Ok(())
    }

    pub fn balance(&self, account: &str) -> Result<i64, LedgerError> {
        match self.balances.get(account) {
            Some(balance) => Ok(*balance),
            None => Err(LedgerError::UnknownAccount(account.to_string())),
        }
    }

    pub fn history(&self, account: &str) -> Vec<&Entry> {
        self.journal
            .iter()
            .filter(|entry| entry.account == account)
            .collect()
    }
}
