import { mount } from "svelte";
import App from "./App.svelte";
import { settings } from "./lib/settings.svelte";
import { apply_theme } from "./lib/theme";
import "./styles/index.css";

const target = document.getElementById("app");
if (!target) throw new Error("index.html has no #app");
apply_theme(settings.theme);
mount(App, { target });
