// What a page has left of a task, before anything that reads it is loaded.

import "./dom";

export const KEY = "greenroom.task.files";
localStorage.setItem("greenroom.task", "look at them");
localStorage.setItem(KEY, '["a.txt","b.txt","c.txt"]');

// One of them was brought before, by an attempt of which nobody knows what came.
const message = { said: '["look at them",["uploads/c-2.txt"]]', key: "m" };
const attempt = { wish: "{}", task: "look at them", key: "k", session: "s1", uploaded: {}, message, brought: ["c.txt"] };
localStorage.setItem("greenroom.task.attempt", JSON.stringify(attempt));
