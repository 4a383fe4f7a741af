// Code that the first view does not need, in one lazily loaded file. Many small files would weigh
// more.

// The app is already loaded. The import makes the bundler emit one shared file instead of one for
// each set of entries.
import "./components/App";
export { SessionFacts } from "./components/SessionFacts";
export { Admin } from "./components/Admin";
export { ApiDocs } from "./components/ApiDocs";
export { Attachments } from "./components/Attachments";
export { BudgetSpent } from "./components/BudgetSpent";
export { ConfirmDock } from "./components/ConfirmDock";
export { Divider } from "./components/Divider";
export { ModelMenu } from "./components/ModelMenu";
export { RejectedRequests } from "./components/RejectedRequests";
export { Palette } from "./components/Palette";
export { Queue } from "./components/Queue";
export { Recording } from "./components/Recording";
export { SessionActions } from "./components/SessionActions";
export { SessionDialog } from "./components/SessionDialog";
export { Settings } from "./components/Settings";
export { Shortcuts } from "./components/Shortcuts";
export { SignedOut } from "./components/SignedOut";
export { followLink } from "./dom/followLink";
export { TaskFiles } from "./components/TaskFiles";
export { TaskOptions } from "./components/TaskOptions";
export { Workspace } from "./components/Workspace";
export { startTask } from "./state/startTask";
export { mergeEarlier, readEarlierEvents } from "./state/earlierEvents";
export { uploadAttachment } from "./state/uploadAttachment";
