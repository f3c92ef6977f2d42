"""Where tests run side by side, the longest files come first: nobody waits for one of them at the end."""

LONGEST = [
    f"test_{name}.py"
    for name in (
        "interpreter",
        "gradient",
        "force_fx",
        "cli",
        "scripts",
        "triton_amd",
        "calculator",
    )
]


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
