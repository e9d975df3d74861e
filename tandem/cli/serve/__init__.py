"""What runs and guards services.

up, one_process, demo, contact_sheet  `tandem up` and `tandem demo`
health                                for probes
certificates, token                   who may call
settings_page                         docs/settings.md
"""
