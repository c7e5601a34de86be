//! docs/outages.md: its commands do what it says.

use tempfile::TempDir;

use super::served::Scene;
use super::walkthrough::{Names, check, examples};

const PAGE: &str = include_str!("../../../../../docs/outages.md");

#[tokio::test]
async fn the_commands_of_the_page_about_outages_do_what_it_says() {
    let scene = Scene::start().await;
    let directory = TempDir::new().unwrap();
    let mut names = Names::of(&scene);
    let examples = examples(PAGE);
    assert!(examples.len() > 12, "{}", examples.len());
    for example in &examples {
        check(&scene, directory.path(), &mut names, example).await;
    }
    // Ten failures until it opened, the first order again, three that waited, one behind the block, and the 429.
    scene.sink.wait_for(16).await;
}
