document.getElementById("app").textContent = "Bloomery";
