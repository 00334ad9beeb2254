"""gmlake in other libraries' trainers: marks, memory lines in their logs, a page at the end.

    from gmlake.integrations.transformers import GmlakeCallback  # or .lightning
    from gmlake.integrations.accelerate import GmlakeTraining

Nothing is imported here: each of the modules needs the library of its name.
"""
