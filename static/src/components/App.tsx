// The whole page: the sidebar, and beside it what the address names.

import { useEffect, useLayoutEffect } from "preact/hooks";
import { loadLater } from "../ondemand";
import { route } from "../route";
import { asked } from "../state/asked";
import { overlay } from "../state/keys";
import { watchSessions } from "../state/list";
import { sidebarCovers, sidebarOpen } from "../state/sidebar";
import { signedOut } from "../wire/rest";
import { Home } from "./Home";
import { lazy, pageSkeleton } from "./lazy";
import { Page } from "./Page";
import { SessionPage } from "./SessionPage";
import { Sidebar } from "./Sidebar";
import { enterSidebar } from "./SidebarButton";

const Admin = lazy((later) => later.Admin, pageSkeleton);
const ApiDocs = lazy((later) => later.ApiDocs, pageSkeleton);
const Recording = lazy((later) => later.Recording, pageSkeleton);
const Palette = lazy((later) => later.Palette);
const SessionQuestions = lazy((later) => later.SessionQuestions);
const SignedOut = lazy((later) => later.SignedOut);
const Shortcuts = lazy((later) => later.Shortcuts);

export function App() {
  useEffect(watchSessions, []);
  useEffect(() => {
    void import("../outside");
    // What is here already need not be asked of a server that has become another version meanwhile, and has not these files.
    void loadLater();
  }, []);
  const covered = sidebarCovers.value;
  useLayoutEffect(() => (covered ? enterSidebar() : undefined), [covered]);
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
      <main class="main" inert={covered}>
        <Shown />
      </main>
      {overlay.value === "palette" && <Palette />}
      {overlay.value === "shortcuts" && <Shortcuts />}
      {asked.value && <SessionQuestions key={`${asked.value.act} ${asked.value.session.id}`} {...asked.value} />}
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
    case "recording":
      return <Recording key={shown.file} file={shown.file} />;
    case "admin":
      return <Admin />;
    case "docs":
      return <ApiDocs />;
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
