//! Actions of a person on the page, and checks of what the page shows.

use std::{path::Path, time::Duration};

use fantoccini::{
    Client, Locator,
    actions::{InputSource, KeyAction, KeyActions},
    elements::Element,
    key::Key,
};
use serde_json::{Value, json};

use greenroom_testkit::chromium::{TestBrowser, console, devtools};
use greenroom_testkit::{self, server::TestServer};

pub(crate) struct BrowserPage<'a> {
    pub(crate) client: &'a Client,
}

impl<'a> BrowserPage<'a> {
    /// Opens the link that the server printed.
    pub(crate) async fn signed_in(browser: &'a TestBrowser, server: &TestServer) -> BrowserPage<'a> {
        let page = BrowserPage { client: &browser.client };
        page.go(&server.rest.link()).await;
        page
    }

    pub(crate) async fn go(&self, address: &str) {
        self.client.goto(address).await.unwrap_or_else(|e| panic!("{address}: {e}"));
    }

    /// Opens a path of this server.
    pub(crate) async fn visit(&self, path: &str) {
        let here = self.client.current_url().await.expect("an address");
        self.go(here.join(path).expect("a path").as_str()).await;
    }

    pub(crate) async fn find(&self, what: Locator<'_>) -> Element {
        let wait = self.client.wait().at_most(greenroom_testkit::DEADLINE).every(Duration::from_millis(50));
        match wait.for_element(what).await {
            Ok(element) => element,
            Err(e) => self.fail(&format!("{what:?} is not there ({e})")).await,
        }
    }

    pub(crate) async fn css(&self, selector: &str) -> Element {
        self.find(Locator::Css(selector)).await
    }

    /// Runs a script: the body of a function whose arguments are `arguments`.
    pub(crate) async fn js(&self, script: &str, arguments: &[Value]) -> Value {
        self.client.execute(script, arguments.to_vec()).await.unwrap_or_else(|e| panic!("{script}: {e}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, what: &str, expression: &str) {
        let script = format!("return Boolean({expression})");
        let waited = tokio::time::timeout(greenroom_testkit::DEADLINE, async {
            while self.js(&script, &[]).await != json!(true) {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        if waited.await.is_err() {
            self.fail(&format!("timed out waiting for {what}: {expression}")).await
        }
    }

    /// Waits until the conversation contains this text.
    pub(crate) async fn says(&self, text: &str) {
        let log = "document.querySelector('[role=log]')?.textContent";
        self.until(text, &format!("{log}?.includes({})", json!(text))).await;
    }

    /// Waits until all code in the conversation has its buttons, which are added after the first
    /// picture.
    pub(crate) async fn is_dressed(&self) {
        let dressed =
            "[...document.querySelectorAll('.markdown .code-block')].every((code) => code.querySelector('.copy'))";
        self.until("every piece of code can be copied", dressed).await;
    }

    /// Waits until the page shows this text.
    pub(crate) async fn shows(&self, text: &str) {
        self.until(text, &format!("document.body.innerText.includes({})", json!(text))).await;
    }

    pub(crate) async fn shows_no_more(&self, text: &str) {
        self.until(text, &format!("!document.body.innerText.includes({})", json!(text))).await;
    }

    /// Waits until the state line shows this text.
    pub(crate) async fn state(&self, text: &str) {
        let line = "document.querySelector('.state-text')?.textContent";
        self.until(text, &format!("{line}?.startsWith({})", json!(text))).await;
    }

    /// Presses the button, link or label of this name, or else the first whose name contains it.
    pub(crate) async fn click(&self, name: &str) {
        let script = "const all = [...document.querySelectorAll('button, a, summary, label')];
            const nameOf = (it) => it.getAttribute('aria-label') ?? it.innerText.trim();
            const seen = all.filter((it) => it.checkVisibility());
            return seen.find((it) => nameOf(it) === arguments[0]) ?? seen.find((it) => nameOf(it).includes(arguments[0])) ?? null";
        let found = tokio::time::timeout(greenroom_testkit::DEADLINE, async {
            loop {
                let found = self.js(script, &[json!(name)]).await;
                if !found.is_null() {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        let Ok(found) = found.await else { self.fail(&format!("no button, link or label is called `{name}`")).await };
        let id = found.as_object().and_then(|element| element.values().next()?.as_str()).expect("an element");
        let element = Element::from_element_id(self.client.clone(), id.to_owned().into());
        if let Err(e) = element.click().await {
            self.fail(&format!("`{name}` cannot be pressed: {e}")).await
        }
    }

    /// Opens the first raw frame in view. The frames are rendered anew while the list scrolls, so
    /// the search is repeated.
    pub(crate) async fn open_a_frame(&self) {
        loop {
            match self.css(".frame").await.click().await {
                Err(e) if e.is_stale_element_reference() => {}
                Err(e) => self.fail(&format!("no frame can be opened: {e}")).await,
                Ok(()) => return,
            }
        }
    }

    pub(crate) async fn message(&self, text: &str) {
        let field = self.css("textarea[aria-label=Message]").await;
        field.send_keys(text).await.expect("the field takes text");
        field.send_keys(&char::from(Key::Enter).to_string()).await.expect("the field takes keys");
    }

    /// Types on the keyboard into the focused element.
    pub(crate) async fn type_text(&self, text: &str) {
        let keys = text.chars().fold(KeyActions::new("keyboard".to_owned()), |keys, value| {
            keys.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.client.perform_actions(keys).await.expect("the keyboard works");
    }

    pub(crate) async fn key(&self, key: Key) {
        self.type_text(&char::from(key).to_string()).await;
    }

    /// Returns the elements for the selector that are not wholly in the window, or are scrolled out
    /// of the dock.
    pub(crate) async fn out_of_sight(&self, selector: &str) -> Value {
        let script = "const sees = (outer, inner) => inner.left >= outer.left - 1 && inner.top >= outer.top - 1
                && inner.right <= outer.right + 1 && inner.bottom <= outer.bottom + 1;
            const pane = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
            const isGone = (part) => [pane, part.closest('.dock')?.getBoundingClientRect() ?? pane]
                .some((outer) => !sees(outer, part.getBoundingClientRect()));
            const shown = [...document.querySelectorAll(arguments[0])].filter((part) => part.checkVisibility());
            return shown.filter(isGone).map((part) => part.innerText || part.className)";
        self.js(script, &[json!(selector)]).await
    }

    /// Reports if the middle of an element is hidden behind another, or clipped.
    pub(crate) async fn is_covered(&self, selector: &str) -> Value {
        let script = "const part = document.querySelector(arguments[0]);
            const { x, y, width, height } = part.getBoundingClientRect();
            return !part.contains(document.elementFromPoint(x + width / 2, y + height / 2))";
        self.js(script, &[json!(selector)]).await
    }

    /// Presses a key while these keys are held.
    pub(crate) async fn chord(&self, held: &[Key], struck: char) {
        let down = |value| KeyAction::Down { value };
        let up = |value| KeyAction::Up { value };
        let held = || held.iter().copied().map(char::from);
        let keys = held().map(down).chain([down(struck), up(struck)]).chain(held().map(up));
        let keys = keys.fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        self.client.perform_actions(keys).await.expect("the keyboard works");
    }

    /// Waits until an approval request takes presses. A new one ignores them for a moment.
    pub(crate) async fn is_asked(&self) {
        self.until("an approval request", "document.querySelector('.confirm-buttons:not([inert])')").await;
    }

    pub(crate) async fn open_workspace(&self) {
        self.css("[aria-label='Open the workspace']").await.click().await.expect("it opens");
        self.css("[role=tab]").await;
    }

    /// Returns the label or text of the focused element.
    pub(crate) async fn focused(&self) -> String {
        let name = "const it = document.activeElement;
            return it === document.body ? '' : it.getAttribute('aria-label') || it.innerText || it.tagName";
        self.js(name, &[]).await.as_str().unwrap_or_default().trim().to_owned()
    }

    /// Presses Tab until the element of this label has the focus.
    pub(crate) async fn tab_to(&self, label: &str) {
        let mut seen = Vec::new();
        for _ in 0..80 {
            let focused = self.focused().await;
            if focused.contains(label) {
                return;
            }
            seen.push(focused);
            self.key(Key::Tab).await;
        }
        self.fail(&format!("Tab does not reach `{label}`, only {seen:?}")).await
    }

    pub(crate) async fn size(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        devtools(self.client, "Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Emulates a touch screen, which has no hover.
    pub(crate) async fn touched(&self, enabled: bool) {
        devtools(self.client, "Emulation.setTouchEmulationEnabled", json!({ "enabled": enabled })).await;
    }

    /// Sets the system's colour scheme: `light` or `dark`.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]});
        devtools(self.client, "Emulation.setEmulatedMedia", features).await;
    }

    pub(crate) async fn shot(&self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shots/{name}.png"));
        std::fs::create_dir_all(file.parent().expect("it lies in `shots/`")).expect("`shots/` can be made");
        let image = self.client.screenshot().await.expect("the browser takes pictures");
        std::fs::write(file, image).expect("`shots/` can be written");
    }

    /// Checks that no script failed and the page's policy blocked nothing. Failed requests are not
    /// counted: the server reports those.
    pub(crate) async fn is_quiet(&self) {
        let entries = console(self.client).await;
        let bad: Vec<_> = entries
            .iter()
            .filter(|line| line.contains("SEVERE") && !line.contains("Failed to load resource"))
            .collect();
        let bad: Vec<_> = bad.into_iter().filter(|line| !line.contains("WebSocket connection")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }

    async fn fail(&self, reason: &str) -> ! {
        self.shot("failed").await;
        let entries = console(self.client).await;
        panic!("{reason}; shots/failed.png shows the page; the console: {entries:#?}");
    }
}
