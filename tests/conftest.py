from hypothesis import settings

settings.register_profile("belated", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("belated")
