// The whole page: the sidebar, and beside it what the address names.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { route } from "../route";
import { watchSessions } from "../state/list";
import { signedOut } from "../wire/rest";
import { Admin } from "./Admin";
import { Home } from "./Home";
import { Icon } from "./Icon";
import { Page, SignedOut } from "./Page";
import { SessionPage } from "./SessionPage";
import { Sidebar } from "./Sidebar";

/** Whether the sidebar covers the page, where there is no room beside it. */
export const sidebarOpen = signal(false);

export function App() {
  useEffect(watchSessions, []);
  const shown = route.value;
  useEffect(() => {
    sidebarOpen.value = false;
  }, [shown]);
  if (signedOut.value) return <SignedOut />;
  return (
    <div class={sidebarOpen.value ? "app sidebar-open" : "app"}>
      <Sidebar />
      <button
        type="button"
        class="veil"
        aria-label="Close the list of sessions"
        hidden={!sidebarOpen.value}
        onClick={() => (sidebarOpen.value = false)}
      />
      <main class="main">
        <Shown />
      </main>
    </div>
  );
}

function Shown() {
  const shown = route.value;
  switch (shown.page) {
    case "home":
      return <Home />;
    case "session":
      return <SessionPage key={shown.id} id={shown.id} />;
    case "admin":
      return <Admin />;
    case "unknown":
      return (
        <Page title="There is no such page">
          <p>
            <a href="/sessions">To the sessions</a>
          </p>
        </Page>
      );
  }
}

/** Opens the sidebar on a narrow screen; wide screens hide it. */
export function SidebarButton() {
  return (
    <button
      type="button"
      class="icon-button sidebar-button"
      aria-label="Show the list of sessions"
      onClick={() => (sidebarOpen.value = true)}
    >
      <Icon name="menu" />
    </button>
  );
}
