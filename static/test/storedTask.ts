// Stored task of an earlier page, written before the modules load.

import "./testWindow";

export const KEY = "greenroom.task.files";
localStorage.setItem("greenroom.task", "look at them");
localStorage.setItem(KEY, '["a.txt","b.txt","c.txt"]');

// File uploaded by an attempt with unknown outcome.
const message = { said: '["look at them",["uploads/c-2.txt"]]', key: "m" };
const attempt = { "wish": "{}", task: "look at them", key: "k", session: "s1", uploaded: {}, message, brought: ["c.txt"] };
localStorage.setItem("greenroom.task.attempt", JSON.stringify(attempt));
