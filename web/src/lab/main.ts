import { mount } from "svelte";
import { settings } from "../lib/settings.svelte";
import { apply_theme } from "../lib/theme";
import "../styles/lab_index.css";
import LabPage from "./LabPage.svelte";

const target = document.getElementById("app");
if (!target) throw new Error("lab.html has no #app");
apply_theme(settings.theme);
mount(LabPage, { target });
