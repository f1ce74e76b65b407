import { mount } from "svelte";
import ProfilePage from "./profile/ProfilePage.svelte";
import "./styles/profile.css";

const target = document.getElementById("profile");
if (!target) throw new Error("profile.html has no #profile");
mount(ProfilePage, { target });
