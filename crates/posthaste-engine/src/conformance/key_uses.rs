//! Last uses of API keys.

use posthaste_core::id::KeyId;

use super::scene::{Scene, at};
use super::{Kept, Promise, list, same};
use crate::store::KeyUse;

pub(super) const PROMISES: &[Promise] =
    list![the_later_of_two_uses_of_a_key_is_kept, uses_of_a_key_that_is_gone_are_forgotten];

fn used(key: u128, second: i64) -> KeyUse {
    KeyUse { key: KeyId::new(at(0), key), at: at(second) }
}

async fn the_later_of_two_uses_of_a_key_is_kept(scene: Scene) -> Kept {
    same("at first", scene.store.key_uses().await?, [])?;
    scene.store.note_key_uses(vec![], vec![]).await?;
    scene.store.note_key_uses(vec![used(3, 5), used(1, 7)], vec![]).await?;
    same("in the order of the keys", scene.store.key_uses().await?, [used(1, 7), used(3, 5)])?;
    // Another node was slower to tell, or two processes of one key were.
    scene.store.note_key_uses(vec![used(1, 6), used(3, 9), used(2, 1), used(3, 8)], vec![]).await?;
    same("the later ones", scene.store.key_uses().await?, [used(1, 7), used(2, 1), used(3, 9)])
}

async fn uses_of_a_key_that_is_gone_are_forgotten(scene: Scene) -> Kept {
    scene.store.note_key_uses(vec![used(1, 1), used(2, 2), used(3, 3)], vec![]).await?;
    let gone = vec![used(2, 0).key, used(4, 0).key, used(5, 0).key];
    scene.store.note_key_uses(vec![used(3, 4), used(4, 4)], gone).await?;
    same("those that are left", scene.store.key_uses().await?, [used(1, 1), used(3, 4)])
}
