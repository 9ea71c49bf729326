//! What holds a turn to its rules, token by token.

use kapitsa_engine::{Constraint, TokenSet};
use kapitsa_grammar::Matcher;

use super::budget::Budget;

/// A grammar, a limit to thinking, or both.
#[derive(Clone, Debug)]
pub(crate) struct TurnConstraint {
    pub(crate) matcher: Option<Matcher>,
    pub(crate) budget: Option<Budget>,
}

impl Constraint for TurnConstraint {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<bool, String> {
        if let Some(token) = self.budget.as_ref().and_then(Budget::forced) {
            allowed.insert(token);
            return Ok(false);
        }
        match &mut self.matcher {
            Some(matcher) => {
                let mask = matcher.mask().map_err(|error| error.to_string())?;
                allowed.extend_words(mask.words());
                Ok(mask.may_end())
            }
            None => {
                allowed.fill();
                Ok(true)
            }
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if let Some(budget) = &mut self.budget {
            budget.accept(token);
        }
        self.matcher.as_mut().map_or(Ok(()), |matcher| matcher.accept(token)).map_err(|error| error.to_string())
    }

    fn is_complete(&self) -> bool {
        self.matcher.as_ref().is_some_and(Matcher::is_complete)
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
