//! Accessibility check of the page as it is, by axe.

use std::path::Path;

use serde_json::{Value, json};

use super::page::BrowserPage;

/// Runs axe. Returns the serious findings, with their places.
const RUN: &str = r#"
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => done(violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .flatMap(({ id, help, nodes }) => nodes.map(({ target }) => `${id} (${help}): ${target}`))));
"#;

/// Checks that axe has no serious finding, in both themes, wide and narrow. Takes pictures.
pub(crate) async fn check_in_all_looks(page: &BrowserPage<'_>, name: &str) {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("static/node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(axe).expect("axe-core is among the packages of the UI (`npm ci` in `static/`)");
    for (theme, width, height) in [("light", 390, 844), ("dark", 390, 844), ("dark", 1440, 900), ("light", 1440, 900)] {
        page.scheme(theme).await;
        page.size(width, height).await;
        page.touched(width < 800).await;
        page.shot(&format!("{theme}-{width}/{name}")).await;
        page.js(&axe, &[]).await;
        let found = page.client.execute_async(RUN, Vec::<Value>::new()).await.expect("axe runs");
        assert_eq!(found, json!([]), "{theme} {width} {name}");
        let wide = "const parts = [...document.querySelectorAll('html, .main, .split-pane, .workspace')];
            return parts.filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.className)";
        assert_eq!(page.js(wide, &[]).await, json!([]), "{theme} {width} {name} scrolls sideways");
    }
}
