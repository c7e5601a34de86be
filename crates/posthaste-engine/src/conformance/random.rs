//! Random operation sequences, applied to two stores in step: every answer is the same, and so is everything kept.
//!
//! A seed replays a run exactly. The sequences keep to what an engine may do (no grant is named twice, time does not
//! run backwards, only nodes that live lease) but not to what a sensible one would do.

use std::sync::Arc;

use self::dump::dump;
use self::generator::Generator;
use super::reads::recount;
use crate::store::Store;

mod dump;
mod generator;

/// After so many steps everything that both stores show is compared.
const STEPS_PER_DUMP: usize = 200;

/// The most of an answer that an error shows.
const LONGEST_SHOWN: usize = 3_000;

/// Applies `steps` random operations to two empty stores and tells the first difference between them, with the seed,
/// the step, the operation and both answers. Where both refuse, they agree.
pub async fn compare(
    seed: u64,
    steps: usize,
    left: Arc<dyn Store>,
    right: Arc<dyn Store>,
) -> Result<(), String> {
    let mut generator = Generator::new(seed);
    for step in 1..=steps {
        let call = generator.call(&*left).await;
        let now = generator.now();
        let (one, other) = (call.clone().apply(&*left).await.ok(), call.clone().apply(&*right).await.ok());
        if one != other {
            let both = format!("left:  {}\nright: {}", shown(&one), shown(&other));
            return Err(format!("seed {seed}, step {step}, at {now}\n{call:?}\n{both}"));
        }
        generator.learn(&call, one.as_ref());
        if step % STEPS_PER_DUMP == 0 || step == steps {
            let difference = compare_dumps(&generator, &*left, &*right).await;
            difference
                .map_err(|what| format!("seed {seed}, step {step}, at {now}, after {call:?}\n{what}"))?;
        }
    }
    Ok(())
}

async fn compare_dumps(generator: &Generator, left: &dyn Store, right: &dyn Store) -> Result<(), String> {
    let now = generator.now();
    let one = dump(left, generator.ids(), now).await.map_err(|error| format!("left: {error}"))?;
    let other = dump(right, generator.ids(), now).await.map_err(|error| format!("right: {error}"))?;
    for (left, right) in one.parts().into_iter().zip(other.parts()) {
        if left != right {
            return Err(format!("left:  {}\nright: {}", shown(&left), shown(&right)));
        }
    }
    let counted = recount(left, None, now).await.map_err(|error| error.to_string())?;
    let kept = left.stats(None, now).await.map_err(|error| error.to_string())?;
    if kept != counted {
        return Err(format!("both keep the counters {kept:?} and hold the rows of {counted:?}"));
    }
    let groups = super::groups::recount(left, None, now).await;
    groups.map_err(|error| format!("both keep groups that differ from the dead letters: {error}"))
}

fn shown(answer: &impl std::fmt::Debug) -> String {
    let text = format!("{answer:?}");
    text[..text.floor_char_boundary(LONGEST_SHOWN)].to_owned()
}
