"""What runs and guards services.

up, one_process, demo, contact_sheet  `tandem up` and `tandem demo`; served_model: their model
health                                for probes
certificates, token                   who may call
service_settings, settings_page       what services read of the environment; docs/settings.md
"""
