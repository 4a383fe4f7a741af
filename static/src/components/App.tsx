// The whole page: the sidebar, and beside it what the address names.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { route } from "../route";
import { watchSessions } from "../state/list";
import { signedOut } from "../wire/rest";
import { Admin } from "./Admin";
import { Home } from "./Home";
import { Page, SignedOut } from "./Page";
import { SessionPage } from "./SessionPage";
import { Sidebar } from "./Sidebar";
import { sidebarOpen } from "./SidebarButton";

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
    case "docs":
      return <Docs />;
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

/** Few people ask for it, so nobody else loads it. */
function Docs() {
  const [Loaded, setLoaded] = useState<ComponentType | null>(null);
  useEffect(() => void import("./ApiDocs").then(({ ApiDocs }) => setLoaded(() => ApiDocs)), []);
  return Loaded ? <Loaded /> : <div class="skeleton tall" role="status" aria-label="Loading" />;
}
